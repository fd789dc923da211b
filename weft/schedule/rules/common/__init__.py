"""What the schedule rules of all machines share."""
